"""
The scripts that shells read to complete command lines.
"""

from __future__ import annotations

BASH = """\
# bash completion for twisted-exec and kubectl-console: source <(twisted-exec completion bash)
_twisted_exec() {
    local word program=$1
    [[ $program == *kubectl-console ]] && program=${program%kubectl-console}twisted-exec
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ $word == :path ]]; then
            compopt -o filenames -o bashdefault -o default 2>/dev/null
        else
            COMPREPLY+=("$word")
        fi
    done < <("$program" __complete --bash "$COMP_POINT" "$2" -- "$COMP_LINE" 2>/dev/null)
    # A candidate that ends in = continues with a value.
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _twisted_exec twisted-exec kubectl-console
# kubectl completes "kubectl console" by a function of bash-completion. Without it, Tab names a function that is missing.
if declare -F __kubectl_init_completion >/dev/null && ! declare -F _get_comp_words_by_ref >/dev/null; then
    __kubectl_init_completion() {
        compopt +o default 2>/dev/null
        [[ -n ${_twisted_exec_has_told-} ]] && return 1
        _twisted_exec_has_told=1
        printf '\\n%s\\n%s\\n' "kubectl completes nothing: the package bash-completion is missing." \\
            "Install it, and open a new shell; kubectl-console NAME completes without it." >&2
        return 1
    }
fi
"""

ZSH = """\
#compdef twisted-exec kubectl-console
# zsh completion for twisted-exec and kubectl-console: source <(twisted-exec completion zsh)
_twisted_exec() {
    local program=${words[1]} line
    local -a candidates
    local is_path=
    [[ $program == *kubectl-console ]] && program=${program%kubectl-console}twisted-exec
    while IFS= read -r line; do
        if [[ $line == :path ]]; then
            is_path=1
        else
            line=${line//:/\\\\:}
            candidates+=("${line/$'\\t'/:}")
        fi
    done < <($program __complete --describe -- "${words[1]:t}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if [[ -n $is_path ]]; then
        [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
        _files
    else
        _describe twisted-exec candidates
    fi
}
if [[ $funcstack[1] == _twisted_exec ]]; then
    _twisted_exec "$@"
else
    compdef _twisted_exec twisted-exec kubectl-console
fi
"""

FISH = """\
# fish completion for twisted-exec and kubectl-console: twisted-exec completion fish | source
function __twisted_exec_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r 'kubectl-console$' twisted-exec -- $words[1])
    for line in ($program __complete --describe -- (basename $words[1]) $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :path
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c twisted-exec -f -a '(__twisted_exec_complete)'
complete -c kubectl-console -f -a '(__twisted_exec_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
