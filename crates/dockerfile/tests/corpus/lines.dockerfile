# a comment
  # an indented one

from base
Run mkdir /out && \

  # inside
    # indented inside
  echo one > /out/1 && \
  echo two \
# at the start
  three > /out/2
RUN echo "# not a comment" > /out/3 # but this is the shell's
RUN echo a \\ b > /out/4
RUN echo 'x \
y' > /out/5
ENV A=1 \
    B=2 \

    C=3
eNv D=4
