# Starts a PostgreSQL server in a directory and keeps it until standard input ends, which it does when the process
# that holds the other end closes it or dies, even by SIGKILL. Then the server and the directory are removed.
# Arguments: directory, directory of the binaries, and for a standby the URL of its primary. It says "ready" or
# "failed" once.
dir=$1
bin=$2
primary=$3
cd "$dir" || exit 1
trap '"$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; cd /; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
trap '' PIPE # nobody may be left to hear the answer
make() {
	if [ -n "$primary" ]; then
		"$bin/pg_basebackup" -D data -d "$primary" -R -X stream -c fast --no-sync
	else
		"$bin/initdb" -D data -U postgres -E UTF8 --locale=C --no-sync -A scram-sha-256 --pwfile=password
	fi
}
if {
	make && cat settings.conf >>data/postgresql.conf && "$bin/pg_ctl" -D data -l server.log -w -t 90 start
} >setup.log 2>&1 </dev/null; then
	echo ready
else
	echo failed
fi
exec >/dev/null
read -r _ || exit 0
