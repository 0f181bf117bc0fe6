FROM base
RUN mkdir /out && echo "$0" > /out/1
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN echo "${BASH_VERSION:+bash}" > /out/2
RUN x=(a b); echo "${x[1]}" > /out/3
RUN ! (false | true) && echo pipefail > /out/4
SHELL ["/bin/sh", "-c"]
RUN echo "${BASH_VERSION:+bash}" > /out/5
SHELL ["/bin/bash", "-c"]
CMD echo $HOME
ENTRYPOINT echo entry
