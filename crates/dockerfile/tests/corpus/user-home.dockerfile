FROM base
RUN mkdir -m 777 /out && useradd -M -d /no/home app
ENV HOME=/given
RUN echo "$HOME" > /out/1
USER app
RUN echo "$HOME"; echo "$HOME" > /out/2; pwd >> /out/2
