# Completes the command lines of etcdctl in bash. Use: source <(etcdctl completion bash)
_etcdctl_complete() {
    local word IFS=$'\n'
    COMPREPLY=()
    for word in $("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
        [[ $word == :* ]] || COMPREPLY+=("${word%%$'\t'*}")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _etcdctl_complete etcdctl
