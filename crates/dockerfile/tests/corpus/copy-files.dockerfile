FROM base
RUN mkdir -p /t/existing
WORKDIR /t
COPY a.txt /t/
COPY a.txt /t/new
COPY a.txt /t/existing
COPY a.txt b.txt /t/nested/deep/
COPY a.txt /t/made/by/copy
COPY a.txt relative
COPY a.txt ./dot/
COPY b.txt .
COPY ./sub1/../b.txt /t/cleaned
COPY /a.txt /t/rooted
COPY b.txt a.txt/../b2
COPY run.sh /t/
COPY a.txt /t/new
