FROM base
MAINTAINER someone <someone@example.org>
RUN mkdir -p /out /t/v && echo before > /t/v/before
VOLUME /t/v
VOLUME ["/a b", "/c"]
VOLUME /d /e
RUN echo after > /t/v/after
STOPSIGNAL SIGQUIT
HEALTHCHECK --interval=5s --retries=2 CMD curl -f http://localhost/ || exit 1
RUN ls /t/v > /out/1
