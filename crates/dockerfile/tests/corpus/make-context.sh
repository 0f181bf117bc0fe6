#!/bin/sh
# Makes the build context of the corpus in the directory $1, with the same modes everywhere.
set -eu
umask 022
cd "$1"
mkdir -p tree/deep sub1 sub2 'with space' links
echo a > a.txt
echo b > b.txt
echo c1 > c1.txt
echo c2 > c2.txt
echo one > tree/one
echo two > tree/deep/two
echo hidden > tree/.hidden
echo s1 > sub1/s1
echo s2 > sub2/s2
echo spaced > 'with space/file name'
ln -s ../a.txt links/file
ln -s ../tree links/dir
ln -s nowhere links/broken
printf '#!/bin/sh\necho ran "$@"\n' > run.sh
chmod 755 run.sh
mkdir -m 750 archived
echo x > archived/x
ln -s archived/x archived-link
tar --owner=0 --group=0 --mtime=@0 --sort=name -cf archive.tar archived archived-link
rm -r archived archived-link
gzip -nk archive.tar
cp archive.tar.gz renamed.bin
echo plain > not-an-archive.tar
