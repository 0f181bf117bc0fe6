FROM base
ARG A="two words"
ARG B='$A'
ARG C="$A!"
ARG D
ARG E=${D:-fallback}
ARG F=${D:+set}
RUN mkdir /out && printf '%s\n' "$A" "$B" "$C" "$D" "$E" "$F" > /out/args
LABEL c=$C
#args D=given
