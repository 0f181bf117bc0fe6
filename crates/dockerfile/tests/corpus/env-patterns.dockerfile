FROM base
ENV FILE=archive.tar.gz P=/a/b/c
ENV A=${FILE%.*} B=${FILE%%.*} C=${FILE#*.} D=${FILE##*.} E=${P/b/x} F=${P//\//_} G=${FILE/a?/X} H=${FILE%zip}
RUN mkdir /out && env | grep -E '^[A-H]=' | sort > /out/env
