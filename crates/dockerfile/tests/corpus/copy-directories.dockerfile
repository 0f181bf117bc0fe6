FROM base
RUN mkdir -p /t/existing/deep && echo kept > /t/existing/deep/kept && chmod 700 /t/existing
COPY tree /t/tree
COPY tree/ /t/slash/
COPY tree/. /t/dot
COPY tree /t/existing
COPY tree sub1 sub2 /t/several/
COPY tree/deep tree/one /t/mixed/
COPY sub1 sub1/s1 /t/twice/
WORKDIR /t/here
COPY sub2 .
COPY sub1 ./
COPY . /t/all/
RUN rm -r /t/all
