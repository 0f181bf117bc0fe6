FROM base
ENV A="${NEEDED:?give it}"
