FROM base
COPY missing.txt /t/
