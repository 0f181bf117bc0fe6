FROM base
RUN exit 3
