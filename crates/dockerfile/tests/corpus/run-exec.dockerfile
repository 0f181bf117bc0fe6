FROM base
ENV X=x
RUN mkdir /out
RUN ["/bin/sh", "-c", "echo \"$0 $1 $X\" > /out/1", "zero", "one two"]
RUN ["touch", "/out/$X", "/out/a b"]
RUN [ -d / ] && echo shell > /out/2
RUN echo "a\tb" 'c\td' \$X $X > /out/3
RUN ["sh", "-c", "printf '%s\\n' 'a\"b' \u0041 > /out/4"]
RUN ['not', 'json'] || echo "status $?" > /out/5
