FROM base
ENV X=x
ENTRYPOINT exec top -b
CMD echo "$X" '$X' && true
