FROM base
USER nobody-has-this-name
RUN id
