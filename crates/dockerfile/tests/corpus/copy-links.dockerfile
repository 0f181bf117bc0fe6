FROM base
RUN mkdir -p /t/target && ln -s target /t/link && ln -s /t/elsewhere /t/dangling
COPY links /t/links
COPY links/file /t/followed
COPY links/dir /t/followed-dir
COPY a.txt /t/link/
COPY tree /t/link
COPY b.txt /t/link/sub/
COPY links/f* /t/wild/
COPY links/dir/one /t/through
