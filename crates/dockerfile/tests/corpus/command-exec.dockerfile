FROM base
CMD ["first"]
CMD ["sh", "-c", "echo $X", "a\"b"]
ENTRYPOINT ["/run", "with space"]
