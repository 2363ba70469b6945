"""Shell scripts for a pod in the node's process namespace: what they restart, they wait for."""

from __future__ import annotations

CANNOT = 3
# The last line of a script that did what it should.
DONE = "done"
# What the scripts below are made of.
FUNCTIONS = r"""
host() { nsenter --target 1 --mount --uts --ipc --net --pid -- "$@"; }
has_systemd() { [ "$(cat /proc/1/comm)" = systemd ]; }
# The oldest process of a name: a runtime's threads and children may have it too.
find_process() {
  for each in /proc/[0-9]*; do
    [ "$(cat "$each/comm" 2>/dev/null)" = "$1" ] && echo "${each#/proc/}"
  done | sort -n | head -n 1
}
# The systemd service that runs a component; k3s and RKE2 run the kubelet in a process of theirs.
find_service() {
  for each in "$1" $2; do
    host systemctl is-active --quiet "$each.service" && echo "$each" && return
  done
}
# Restarts a component: by systemd, or by killing it where the node's first process starts it again.
restart() {
  old=$(find_process "$1")
  if has_systemd; then
    service=$(find_service "$1" "$2")
    if [ -z "$service" ]; then echo "$1 is not a systemd service that runs"; exit 3; fi
    echo "systemctl restart $service"
    host systemctl restart "$service.service" || exit 1
  else
    if [ -z "$old" ]; then echo "the node has no process called $1"; exit 3; fi
    [ "$(sed -n 's/^PPid:\t//p' "/proc/$old/status")" = 1 ] ||
      { echo "nothing known would start $1 again"; exit 3; }
    echo "$1 is killed, for the node's first process to start it again"
    kill -9 "$old"
  fi
}
await() {
  has_systemd && return
  for _ in $(seq 300); do
    new=$(find_process "$1")
    if [ -n "$new" ] && [ "$new" != "$old" ]; then
      echo "$1: process $old, then $new"; return
    fi
    sleep 0.1
  done
  echo "$1 did not come back within 30 s"; exit 1
}
"""
_KUBELETS = "k3s-agent rke2-agent k3s rke2-server"
RESTART_KUBELET = f"{FUNCTIONS}\nrestart kubelet '{_KUBELETS}'; await kubelet; echo {DONE}"
RESTART_RUNTIME_AND_KUBELET = f"""{FUNCTIONS}
restart containerd; runtime=$old; restart kubelet
await kubelet; old=$runtime; await containerd; echo {DONE}
"""
RELOAD_SYSTEMD = f"""{FUNCTIONS}
has_systemd || {{ echo "the node has no systemd"; exit 3; }}
host systemctl daemon-reload && echo {DONE}
"""
