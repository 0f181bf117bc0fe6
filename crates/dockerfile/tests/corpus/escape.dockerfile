# escape=`
FROM base
ENV A=c:\dir B=a` b C=`$A
RUN mkdir /out && echo a `
  b > /out/1
RUN printf '%s\n' 'x\ny' > /out/2
WORKDIR /t/back\slash
