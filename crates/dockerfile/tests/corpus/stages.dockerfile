FROM base AS build
ARG V=1
WORKDIR /src
COPY tree .
RUN mkdir /out && echo "built $V" > result && echo in-build > /out/build && ln -s one link
ENV ONLY_IN_BUILD=1
FROM base AS unused
RUN exit 1
FROM base AS second
COPY --from=build /src /t/src
COPY --from=0 /src/result /t/renamed
RUN mkdir /out && echo "[$V] [$ONLY_IN_BUILD]" > /out/1
FROM second
COPY --from=BUILD --chown=7:8 --chmod=640 /src/deep /t/owned
COPY --from=build /src/*e /t/globbed/
COPY --from=second /out/1 /t/
WORKDIR /t/w
COPY --from=build src/result relative
COPY --from=build /src/link /t/linked
#args V=2
