FROM base
ENV D=dir
COPY ["with space/file name", "/t/to here/"]
COPY ["a.txt", "b.txt", "/t/$D/"]
ADD ["with space", "/t/added"]
