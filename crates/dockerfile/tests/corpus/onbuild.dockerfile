FROM base AS parent
RUN mkdir /out
ONBUILD ENV A=triggered
ONBUILD COPY a.txt /t/
ONBUILD RUN echo "in child $A" > /out/1
RUN echo in parent > /out/0
FROM parent
RUN cat /out/1 > /out/2
