FROM base
RUN groupadd -g 2000 team && useradd -m -u 1500 -U app && groupmod -g 1600 app && usermod -g 1600 app
COPY --chown=app a.txt /t/name
COPY --chown=app:team a.txt /t/name-group
COPY --chown=:team a.txt /t/group
COPY --chown=77 a.txt /t/uid
COPY --chown=77:88 tree /t/tree
COPY --chown=app:88 a.txt /t/new/dir/mixed
COPY --chmod=600 a.txt /t/mode
COPY --chmod=0755 tree /t/mode-tree
COPY --chmod=640 tree /t/mode-file
COPY --chown=1500 --chmod=4711 run.sh /t/both
ENV OWNER=app
COPY --chown=$OWNER:${OWNER} a.txt /t/variable
USER app
COPY a.txt /t/as-user
ADD --chown=app a.txt /t/added
