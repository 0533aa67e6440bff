# An MCP server for tests. The first argument chooses what is wrong with it. With LOG set, it writes
# there what it reads, and its process number first.

mode=${1-plain}
LOG=${LOG-/dev/null}
SCHEMA='{"type":"object","properties":{"text":{"type":"string"}}}'
PIXEL=iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
changed=

say() {
  printf '%s\n' "$1"
}

answer() {
  say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"
}

text() {
  answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"
}

tool() {
  printf '{"name":"%s","description":"does %s","inputSchema":%s%s}' "$1" "$1" "$SCHEMA" "${2-}"
}

list() {
  case $mode in
  schema) answer "{\"tools\":[$(tool good),{\"name\":\"bad\",\"inputSchema\":7}]}" ;;
  huge-schema)
    fill=$(head -c 70000 /dev/zero | tr '\0' x)
    answer "{\"tools\":[$(tool good),{\"name\":\"bad\",\"inputSchema\":{\"d\":\"$fill\"}}]}"
    ;;
  wide)
    fill=$(head -c 60000 /dev/zero | tr '\0' x)
    wide="{\"name\":\"t1\",\"inputSchema\":{\"d\":\"$fill\"}}"
    for n in 2 3 4; do
      wide="$wide,{\"name\":\"t$n\",\"inputSchema\":{\"d\":\"$fill\"}}"
    done
    answer "{\"tools\":[$wide]}"
    ;;
  names) answer "{\"tools\":[$(tool a.b),$(tool "$(head -c 200 /dev/zero | tr '\0' n)")]}" ;;
  pages)
    case $line in
    *'"cursor":"two"'*) answer "{\"tools\":[$(tool second)]}" ;;
    *) answer "{\"tools\":[$(tool first)],\"nextCursor\":\"two\"}" ;;
    esac
    ;;
  *)
    reads=',"annotations":{"readOnlyHint":true}'
    all="$(tool slow),$(tool echo),$(tool fail),$(tool image),$(tool progress),$(tool die)"
    all="$all,$(tool look "$reads"),$(tool structured),$(tool change),$(tool where),$(tool long)"
    all="$all,$(tool flood),$(tool wrong),$(tool env),$(tool pid)"
    answer "{\"tools\":[$all$changed]}"
    ;;
  esac
}

call() {
  case $line in
  *'"name":"echo"'*)
    words=${line#*\"text\":\"}
    text "you said ${words%%\"*}"
    ;;
  *'"name":"look"'*) text "looked" ;;
  *'"name":"fail"'*) answer '{"content":[{"type":"text","text":"no such thing"}],"isError":true}' ;;
  *'"name":"wrong"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32602,\"message\":\"bad arguments\"}}"
    ;;
  *'"name":"image"'*)
    answer "{\"content\":[{\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\"$PIXEL\"},
      {\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\"bm8=\"}]}" | tr -d '\n'
    say ''
    ;;
  *'"name":"structured"'*) answer '{"content":[],"structuredContent":{"n":1}}' ;;
  *'"name":"progress"'*)
    token=${line#*\"progressToken\":}
    token=${token%%[,\}]*}
    for n in 1 2; do
      say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$token,\"progress\":$n,\"total\":2,\"message\":\"part $n\"}}"
    done
    text "all parts"
    ;;
  *'"name":"die"'*) exit 3 ;;
  *'"name":"slow"'*) ;;
  *'"name":"change"'*)
    changed=",$(tool added)"
    say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    text "changed"
    ;;
  *'"name":"where"'*)
    asked=$id
    say '{"jsonrpc":"2.0","id":900,"method":"roots/list"}'
    read -r line
    root=${line#*\"uri\":\"}
    id=$asked
    text "${root%%\"*} $PWD"
    ;;
  *'"name":"env"'*) text "$(env | sed 's/=.*//' | sort | tr '\n' ' ') ${GIVEN-}" ;;
  *'"name":"pid"'*) text "$$" ;;
  *'"name":"long"'*) text "$(head -c 100000 /dev/zero | tr '\0' y)" ;;
  *'"name":"flood"'*) head -c 17000000 /dev/zero | tr '\0' x ;;
  *) text "done" ;;
  esac
}

echo "pid $$" >>"$LOG"
case $mode in
silent) exec sleep 1000 ;;
ends)
  echo "the token is missing" >&2
  exit 4
  ;;
junk)
  printf '\377\376 not JSON\n{"jsonrpc":"2.0"\n\n'
  printf '%0100000d\n' 7
  ;;
# The shell stays, so that its standard input does.
endless) tr '\0' x </dev/zero ;;
stubborn) trap '' TERM HUP INT ;;
esac
while read -r line; do
  printf '%s\n' "$line" >>"$LOG"
  id=${line#*\"id\":}
  id=${id%%[,\}]*}
  case $line in
  *'"method":"initialize"'*)
    answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"t","version":"1"},"instructions":"Be gentle."}'
    ;;
  *'"method":"tools/list"'*) list ;;
  *'"method":"tools/call"'*) call ;;
  esac
done
if [ "$mode" = stubborn ]; then
  sleep 1000
fi
