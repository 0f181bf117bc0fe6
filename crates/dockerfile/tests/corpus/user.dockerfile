FROM base
RUN mkdir -m 777 /out && groupadd -g 2000 extra && groupadd -g 2001 staff2 && useradd -m -d /srv/app -u 1500 -G extra app
USER app
RUN id > /out/1; echo "$HOME" >> /out/1; touch /out/by-app
USER app:staff2
RUN id > /out/2
USER 1500:2000
RUN id > /out/3; echo "$HOME" >> /out/3
USER nobody
RUN id > /out/4; echo "$HOME" >> /out/4
USER 4242
RUN id > /out/5; echo "$HOME" >> /out/5
USER 4242:4243
RUN id > /out/6
USER root
RUN id > /out/7; echo "$HOME" >> /out/7
USER 0
RUN stat -c '%n %u:%g' /out/by-app > /out/8
ENV WHO=app
USER $WHO
RUN id -un > /out/9
