FROM base
ENV X=x
RUN mkdir /out
RUN <<EOT
echo "one $X" > /out/1
Y=y
echo "two $Y" >> /out/1
EOT
RUN <<'EOT'
echo '$X' "$X" > /out/2
EOT
RUN <<EOT
#!/bin/bash
a=(1 2 3)
echo "${a[2]}" > /out/3
EOT
RUN cat <<EOT > /out/4
$X and \$X
EOT
RUN cat <<'ONE' > /out/5 && cat <<TWO >> /out/5
$X
ONE
$X
TWO
RUN <<'EOT' bash
b=(x y)
echo "${b[1]}" > /out/6
EOT
RUN <<-EOT
	echo stripped > /out/7
		EOT
RUN <<EOT
echo continues \
  here > /out/8
# RUN in a comment
EOT
