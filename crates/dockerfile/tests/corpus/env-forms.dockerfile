FROM base
ENV A=1 B="two words" C='single $A' D=esc\ aped E=a\$A
ENV LEGACY some  text with  spaces "and quotes" 'x'
ENV L2 $A and ${B}
ENV A=2 F=$A G=${A}x
ENV H="${NONE:-default}" I=${A:+set} J=${NONE:+unset} K=${EMPTY-dash}
ENV EMPTY=
ENV M=${EMPTY:-colon} N=${EMPTY-nocolon} O=${EMPTY+plus}
ENV P="q\"uote" Q=a"b"'c' R="tab\tn\n" S='it'"'"'s' T="${NONE:-in $A}"
ENV PATH=/opt/x/bin:$PATH
ENV U=$$ V=a$ W="$" X=${A}${A}
ENV Y=a \
    # a comment
    Z=b
RUN mkdir /out && env | grep -E '^([A-Z]|L2|LEGACY|EMPTY|PATH)=' | sort > /out/env
