FROM base
RUN mkdir /out && pwd > /out/1
WORKDIR rel
RUN pwd > /out/2
WORKDIR ../t/a
WORKDIR b/../c/
ENV D=var E=
RUN pwd > /out/3
USER nobody
WORKDIR /t/$D/${NONE:-none}/"quo ted"
USER root
RUN pwd > /out/4
WORKDIR /t/made
RUN touch x
WORKDIR /t/last/
