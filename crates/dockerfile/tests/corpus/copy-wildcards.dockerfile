FROM base
COPY *.txt /t/all/
COPY c?.txt /t/question/
COPY [ab].txt /t/set/
COPY [^ab]*.txt /t/negated/
COPY sub*/ /t/directories/
COPY sub* /t/directories2/
COPY */s1 /t/star/
COPY t*/d*/t* /t/deep/
COPY a*.txt /t/one
COPY \*.txt* a.txt /t/escaped/
