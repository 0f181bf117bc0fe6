FROM base
ARG WHO=nobody
ENV DIR=/t/dir FILE=a MODE=700 SIG=TERM
WORKDIR $DIR
COPY ${FILE}.txt $DIR/${FILE}
COPY b.txt ./
ADD $FILE.txt ${DIR}/added
USER $WHO
LABEL dir="$DIR" raw='$DIR' esc=\$DIR
EXPOSE ${NONE:-81}
CMD echo $DIR
ENTRYPOINT ["$DIR"]
