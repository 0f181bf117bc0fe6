FROM base
COPY --from=base /etc/debian_version /t/version
COPY --from=base /etc/pam.d /t/pam
RUN mkdir /out && wc -l < /t/version > /out/1 && ls /t/pam | head -n 3 > /out/2 && rm -r /t
