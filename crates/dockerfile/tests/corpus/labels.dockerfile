FROM base
ENV V=1.0
LABEL a=b c="d e" "f.g"='h' i=$V j=${V}-x
LABEL "k"="multi \
line" l=""
LABEL legacy some  text
LABEL a=replaced
LABEL quoted="say \"hi\"" single='$V'
