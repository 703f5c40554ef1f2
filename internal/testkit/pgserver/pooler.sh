# Starts PgBouncer in a directory and keeps it until standard input ends, which it does when the process that holds the
# other end closes it or dies, even by SIGKILL. Then the pooler and the directory are removed.
# Arguments: directory, program.
dir=$1
bin=$2
cd "$dir" || exit 1
pid=
trap 'kill -KILL $pid 2>/dev/null; wait; cd /; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
"$bin" -q pgbouncer.ini >setup.log 2>&1 </dev/null &
pid=$!
read -r _ || exit 0
