#compdef etcdctl
# Completes the command lines of etcdctl in zsh. Use: source <(etcdctl completion zsh), or keep it as _etcdctl in a folder of $fpath.
_etcdctl() {
    local -a found
    local line
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ $line == :* ]] || found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    (( ${#found} )) && _describe etcdctl found || _files
}
if [[ ${funcstack[1]} == _etcdctl ]]; then _etcdctl "$@"; else compdef _etcdctl etcdctl; fi
