ARG BASE=base
ARG GLOBAL=global
ARG OTHER=$GLOBAL-x
FROM ${BASE}
RUN mkdir /out && echo "before [$GLOBAL] [$OTHER] [$GIVEN]" > /out/1
ARG GLOBAL
ARG OTHER=local
ARG GIVEN=default
ARG UNSET
ARG TWO=$GIVEN-2
RUN echo "after [$GLOBAL] [$OTHER] [$GIVEN] [${UNSET-none}] [$TWO]" > /out/2
ENV GIVEN=env
ARG GIVEN=late
RUN echo "env wins [$GIVEN]" > /out/3
ENV KEPT=$TWO
ARG A=1 B=2
RUN echo "[$A$B]" > /out/4
#args GIVEN=given OVER=unused
