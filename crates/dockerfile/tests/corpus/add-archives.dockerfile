FROM base
RUN mkdir -p /t/existing
ADD archive.tar /t/plain
ADD archive.tar.gz /t/gzip/
ADD archive.tar.gz a.txt /t/mixed/
ADD renamed.bin /t/renamed
COPY archive.tar.gz /t/copied/
ADD a.txt /t/existing
ADD tree /t/tree
ADD not-an-archive.tar /t/fake
