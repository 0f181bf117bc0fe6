FROM base
ENV X=x
COPY <<EOT /t/expanded
$X "${X}y" '\$X' \\ a\b
EOT
COPY <<'EOT' /t/literal
$X \$X
EOT
COPY <<-EOT /t/stripped
	one
		two
	EOT
COPY <<one <<two a.txt /t/several/
1
one
2
two
COPY --chmod=750 --chown=12:34 <<EOT /t/owned
x
EOT
RUN mkdir /out && cp /t/expanded /t/literal /t/stripped /t/several/one /out/
