"""What runs in a pod: it prints the files of the ranks and, unless they are enough, what /proc says.

Only names of code, states of processes and times are printed: no arguments, no environment, no variables.
"""

from __future__ import annotations

from .reading import MAX_PROCESSES, MAX_RANKS

# POSIX, as busybox has it. $1: the path of the progress file; $2: `files`, if they are enough.
# `read` takes no part of a file but its line.
_SHELL = """
set -f; p=$1; echo "@now $(date +%s) $(uname -m) $(uname -n)"; echo "@self $$"; n=0; set +f
for f in "$p".rank-*; do set -f
k=${f##*.rank-}; case $k in *[!0-9]*|"") continue;; esac
[ -f "$f" ] || continue; n=$((n+1)); [ $n -le RANKS ] || break
echo "@rank $k"; head -c 2048 "$f"; echo
t=$f.trace; [ -s "$t" ] && [ "$t" -nt "$f" ] && [ -f "$t" ] || continue
echo "@trace $k"; tail -c 4096 "$t"; echo
done
[ "$2" != files ] || { echo @end; exit; }
look() { set +f; n=0; for d in /proc/[0-9]*; do set -f
s=; { while read -r l; do s="$s$l "; done <"$d/stat"; } 2>/dev/null; n=$((n+1)); [ $n -le PROCESSES ] || break
i=${d#/proc/}; r=${s##*) }; set -- $r; [ $# -ge 13 ] || continue
if [ $w = 1 ]; then c=; y=-; q=-
{ read -r c <"$d/comm"; read -r y v <"$d/syscall"; read -r q <"$d/wchan"; } 2>/dev/null
printf '@proc %s %s %s %s %s %s %s\\n' "$i" "$2" "$1" $((${12}+${13})) "${y:--}" "${q:--}" "$c"
else printf '@cpu %s %s %s\\n' "$i" "$1" $((${12}+${13})); fi
done; }
w=1; look; sleep 1; w=2; look; echo @end
"""
_PYTHON = """
import glob,os,platform,sys,time
p=sys.argv[1];print('@now',int(time.time()),platform.machine(),platform.node());print('@self',os.getpid())
def read(f,n=4096):
    try:
        with open(f,'rb') as h:return h.read(n).decode('utf-8','replace')
    except OSError:return ''
for f in glob.glob(glob.escape(p)+'.rank-*')[:RANKS*2]:
    k=f.rpartition('.rank-')[2]
    if not(k.isdigit() and os.path.isfile(f)):continue
    print('@rank',k);print(read(f,2048));t=f+'.trace'
    if os.path.isfile(t) and os.path.getsize(t) and os.path.getmtime(t)>os.path.getmtime(f):
        print('@trace',k);print(read(t,1<<20)[-4096:])
if sys.argv[2:]==['files']:print('@end');sys.exit()
def look(first):
    for i in [d for d in os.listdir('/proc') if d.isdigit()][:PROCESSES]:
        d='/proc/'+i+'/';s=read(d+'stat').rpartition(') ')[2].split()
        if len(s)<13:continue
        c=int(s[11])+int(s[12]);y=(read(d+'syscall').split() or ['-'])[0];q=read(d+'wchan') or '-'
        if first:print('@proc',i,s[1],s[0],c,y,q,read(d+'comm').partition('\\n')[0])
        else:print('@cpu',i,s[0],c)
look(True);time.sleep(1);look(False);print('@end')
"""


def _bounded(script: str) -> str:
    return script.replace("RANKS", str(MAX_RANKS)).replace("PROCESSES", str(MAX_PROCESSES)).strip()


SHELL, PYTHON = _bounded(_SHELL), _bounded(_PYTHON)
