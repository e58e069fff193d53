# For other scripts, which source it: a command that has ended is not run again.

# once FOLDER STAGE WORDS...: an agentcli command that ends as STAGE of FOLDER/manifest.json. One that ended, typed as it is now, is passed
# over without starting it.
once() {
  local folder=$1 stage=$2 words stamp
  stamp=$folder/.ended-${stage//\//-}
  shift 2
  words=$(printf '%q ' "$@")
  if [[ -e $stamp && $(<"$stamp") == "$words" ]] && grep -qs "^    \"$stage\": {" "$folder/manifest.json"; then return; fi
  agentcli "$@" -o "$folder" --resume -q
  printf '%s\n' "$words" >"$stamp"
}
