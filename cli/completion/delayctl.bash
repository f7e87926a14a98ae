# SPDX-License-Identifier: LGPL-2.1-or-later
# bash completion for delayctl(1)

_delayctl_cgroups() {
        # A daemon that hangs must not hang the shell.
        timeout 2 delayctl --no-legend --all --kind=blkio --sort=cgroup cgroups 2>/dev/null |
                while read -r name _; do printf '%s\n' "$name"; done
}

_delayctl() {
        local verbs='top cgroups tasks histogram status doctor'
        local flags='-a --all --tree -j --no-legend -h --help --version -b --batch'
        local valued='--json= --color= --window= --kind= --sort= --limit= --iterations= --delay='
        local cur=${COMP_WORDS[COMP_CWORD]} option= verb= word i

        # "--json=s" arrives as three words: "--json", "=", "s".
        if [[ $cur == = ]]; then
                option=${COMP_WORDS[COMP_CWORD-1]} cur=
        elif [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
                option=${COMP_WORDS[COMP_CWORD-2]}
        else
                option=${COMP_WORDS[COMP_CWORD-1]}
        fi

        case $option in
        --json)
                COMPREPLY=($(compgen -W 'short pretty off' -- "$cur"))
                return;;
        --color)
                COMPREPLY=($(compgen -W 'auto always never' -- "$cur"))
                return;;
        --window)
                COMPREPLY=($(compgen -W '1m 5m 15m 1h' -- "$cur"))
                return;;
        --kind)
                COMPREPLY=($(compgen -W 'cpu blkio swapin freepages thrashing compact wpcopy irq' -- "$cur"))
                return;;
        --sort)
                COMPREPLY=($(compgen -W 'total waits mean p50 p90 p99 max cgroup comm' -- "$cur"))
                return;;
        --limit | --iterations | --delay | -n | -d)
                return;;
        esac

        for ((i = 1; i < COMP_CWORD; i++)); do
                word=${COMP_WORDS[i]}
                if [[ " $verbs " == *" $word "* ]]; then
                        verb=$word
                        break
                fi
        done

        if [[ $cur == -* ]]; then
                COMPREPLY=($(compgen -W "$flags $valued" -- "$cur"))
                [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
        elif [[ -z $verb ]]; then
                COMPREPLY=($(compgen -W "$verbs" -- "$cur"))
        elif [[ $verb == histogram ]]; then
                local IFS=$'\n'
                COMPREPLY=()
                while read -r word; do
                        [[ $word == "$cur"* ]] && COMPREPLY+=("$(printf '%q' "$word")")
                done < <(_delayctl_cgroups)
        fi
}

complete -F _delayctl delayctl
