#!/bin/sh
# Shows on this machine with an NVIDIA GPU what Divvy does there. Needs root, an NVIDIA driver, sh, tar
# and gzip; no network, no Kubernetes, no Python. See: run.sh --help
NEEDED_MIB=250
: "${PATH:=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
export PATH LC_ALL=C
stop() {
	echo "hardware kit: $*" >&2
	exit 2
}
case $0 in
*/*) here=$(CDPATH= cd -- "${0%/*}" && pwd) || exit 2 ;;
*) here=$PWD ;;
esac
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || stop "it is for Linux on x86_64, and this is $(uname -s) on $(uname -m)"
[ "$(id -u)" = 0 ] || stop "it needs root, for mount namespaces and device nodes: sudo $0 $*"
for program in tar gzip df mktemp; do
	command -v $program >/dev/null || stop "$program is missing"
done
payload=$here/payload.tar.gz
gzip -t "$payload" 2>/dev/null || stop "$payload is missing or damaged: copy the whole folder again"
# Unpacked for the time of the run, where there is room and programs may run.
tried=
for place in ${TMPDIR:+"$TMPDIR"} /tmp /var/tmp /run /dev/shm; do
	free=$(df -Pk "$place" 2>/dev/null | { read -r _ && read -r _ _ _ kib _ && echo $((kib / 1024)); })
	if [ "${free:-0}" -lt "$NEEDED_MIB" ]; then
		tried="$tried; $place has ${free:-0} MiB"
		continue
	fi
	scratch=$(mktemp -d "$place/divvy-kit.XXXXXX" 2>/dev/null) || {
		tried="$tried; $place cannot be written to"
		continue
	}
	# Its owner is this process, also after exec: a later run removes folders whose owner has ended.
	echo $$ >"$scratch/owner"
	trap 'rm -rf "$scratch"' EXIT
	# A shell may end by a signal without what is to be done at its exit.
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if tar -xzf "$payload" -C "$scratch" && "$scratch/kit/python/bin/python3" -c '' 2>/dev/null; then
		trap - EXIT HUP INT TERM
		exec "$scratch/kit/python/bin/python3" -m lab.kit "$@"
	fi
	tried="$tried; in $place it cannot be unpacked and run (mounted noexec?)"
	rm -rf "$scratch"
	trap - EXIT HUP INT TERM
done
stop "no place to unpack it, which takes $NEEDED_MIB MiB: set TMPDIR${tried}"
