FROM base AS first
CMD ["of", "first"]
ENTRYPOINT ["/first"]
FROM first
ENTRYPOINT ["/second"]
