"""
Expected answers to the same identities with the rights of an administrator as well.
"""

ALSO_ADMIN = """
[machines]
list: 403! 403! 403! 403! 200[free,mine,theirs] 403! 200[] 200[free,mine,theirs]
watch: 403! 403! 403! 403! 200[free,mine,theirs] 403! 200[] 200[free,mine,theirs]
deletecollection: 403! 403! 403! 403! 403! 403! 403 200[free,mine,theirs]
list spec.machinePoolRef.name=pool-a: 200[mine] 403! 403! 403! 200[mine] 403! 200[] 200[mine]
watch spec.machinePoolRef.name=pool-a: 200[mine] 403! 403! 403! 200[mine] 403! 200[] 200[mine]
deletecollection spec.machinePoolRef.name=pool-a: 403! 403! 403! 403! 403! 403! 403 200[mine]
list spec.machinePoolRef.name=pool-b: 403! 200[theirs] 403! 403! 200[theirs] 403! 200[] 200[theirs]
watch spec.machinePoolRef.name=pool-b: 403! 200[theirs] 403! 403! 200[theirs] 403! 200[] 200[theirs]
deletecollection spec.machinePoolRef.name=pool-b: 403! 403! 403! 403! 403! 403! 403 200[theirs]
list spec.machinePoolRef.name!=pool-b: 403! 403! 403! 403! 200[free,mine] 403! 200[] 200[free,mine]
watch spec.machinePoolRef.name!=pool-b: 403! 403! 403! 403! 200[free,mine] 403! 200[] 200[free,mine]
deletecollection spec.machinePoolRef.name!=pool-b: 403! 403! 403! 403! 403! 403! 403 200[free,mine]
get mine: 200 404 403! 403! 200 403! 404 200
create mine: 403! 403! 403! 403! 403! 403! 403 409
update mine: 422 404 403! 403! 422 403! 403 422
annotate mine: 200 404 403! 403! 403! 403! 403 200
label mine: 403! 404 403! 403! 403! 403! 403 200
power mine: 403! 404 403! 403! 403! 403! 403 200
bind mine: 200 404 403! 403! 403! 403! 403 200
delete mine: 403! 404 403! 403! 403! 403! 403 200
get mine/status: 200 404 403! 403! 200 403! 403 200
patch mine/status: 200 404 403! 403! 403! 403! 403 200
post mine/exec: 403! 403! 403! 403! 403! 403! 404 503
get mine/log: 403! 403! 403! 403! 403! 403! 404 503
get theirs: 404 200 403! 403! 200 403! 404 200
create theirs: 403! 403! 403! 403! 403! 403! 403 409
update theirs: 404 422 403! 403! 422 403! 403 422
annotate theirs: 404 200 403! 403! 403! 403! 403 200
label theirs: 404 403! 403! 403! 403! 403! 403 200
power theirs: 404 403! 403! 403! 403! 403! 403 200
bind theirs: 404 422 403! 403! 422 403! 403 422
delete theirs: 404 403! 403! 403! 403! 403! 403 200
get theirs/status: 404 200 403! 403! 200 403! 403 200
patch theirs/status: 404 200 403! 403! 403! 403! 403 200
post theirs/exec: 403! 403! 403! 403! 403! 403! 404 503
get theirs/log: 403! 403! 403! 403! 403! 403! 404 503
get free: 404 404 403! 403! 200 403! 404 200
create free: 403! 403! 403! 403! 403! 403! 403 409
update free: 404 404 403! 403! 422 403! 403 422
annotate free: 404 404 403! 403! 403! 403! 403 200
label free: 404 404 403! 403! 403! 403! 403 200
power free: 404 404 403! 403! 403! 403! 403 200
bind free: 404 404 403! 403! 403! 403! 403 200
delete free: 404 404 403! 403! 403! 403! 403 200
get free/status: 404 404 403! 403! 200 403! 403 200
patch free/status: 404 404 403! 403! 403! 403! 403 200
post free/exec: 403! 403! 403! 403! 403! 403! 404 400
get free/log: 403! 403! 403! 403! 403! 403! 404 400
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 403 201
update missing: 404 404 403! 403! 404 403! 403 404
annotate missing: 404 404 403! 403! 404 403! 403 404
label missing: 404 404 403! 403! 404 403! 403 404
power missing: 404 404 403! 403! 404 403! 403 404
bind missing: 404 404 403! 403! 404 403! 403 404
delete missing: 404 404 403! 403! 404 403! 403 404
get missing/status: 404 404 403! 403! 404 403! 403 404
patch missing/status: 404 404 403! 403! 404 403! 403 404
post missing/exec: 403! 403! 403! 403! 403! 403! 404 404
get missing/log: 403! 403! 403! 403! 403! 403! 404 404
[machinepools]
list: 200[pool-a,pool-b] 200[pool-a,pool-b] 403! 403! 200[pool-a,pool-b] 403! 200[pool-a,pool-b] 200[pool-a,pool-b]
watch: 200[pool-a,pool-b] 200[pool-a,pool-b] 403! 403! 200[pool-a,pool-b] 403! 200[pool-a,pool-b] 200[pool-a,pool-b]
deletecollection: 403! 403! 403! 403! 403! 403! 200[pool-a,pool-b] 200[pool-a,pool-b]
get pool-a: 200 200 403! 403! 200 403! 200 200
create pool-a: 409 403! 403! 403! 403! 403! 409 409
update pool-a: 200 403! 403! 403! 403! 403! 200 200
label pool-a: 200 403! 403! 403! 403! 403! 200 200
delete pool-a: 200 403! 403! 403! 403! 403! 200 200
get pool-a/status: 200 200 403! 403! 200 403! 200 200
patch pool-a/status: 200 403! 403! 403! 403! 403! 200 200
get pool-b: 200 200 403! 403! 200 403! 200 200
create pool-b: 403! 409 403! 403! 403! 403! 409 409
update pool-b: 403! 200 403! 403! 403! 403! 200 200
label pool-b: 403! 200 403! 403! 403! 403! 200 200
delete pool-b: 403! 200 403! 403! 403! 403! 200 200
get pool-b/status: 200 200 403! 403! 200 403! 200 200
patch pool-b/status: 403! 200 403! 403! 403! 403! 200 200
get pool-c: 404 404 403! 403! 404 403! 404 404
create pool-c: 403! 403! 403! 403! 403! 403! 201 201
update pool-c: 404 404 403! 403! 404 403! 404 404
label pool-c: 404 404 403! 403! 404 403! 404 404
delete pool-c: 404 404 403! 403! 404 403! 404 404
get pool-c/status: 404 404 403! 403! 404 403! 404 404
patch pool-c/status: 404 404 403! 403! 404 403! 404 404
[machineclasses]
list: 200[small] 200[small] 403! 403! 200[small] 403! 200[small] 200[small]
watch: 200[small] 200[small] 403! 403! 200[small] 403! 200[small] 200[small]
deletecollection: 403! 403! 403! 403! 403! 403! 200[small] 200[small]
get small: 200 200 403! 403! 200 403! 200 200
create small: 403! 403! 403! 403! 403! 403! 409 409
update small: 403! 403! 403! 403! 403! 403! 200 200
label small: 403! 403! 403! 403! 403! 403! 200 200
delete small: 403! 403! 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
[secrets]
list: 200[named] 200[] 403! 403! 200[named,other] 403! 200[named,other] 200[named,other]
watch: 200[named] 200[] 403! 403! 200[named,other] 403! 200[named,other] 200[named,other]
deletecollection: 403! 403! 403! 403! 403! 403! 200[named,other] 200[named,other]
list metadata.name=other: 200[] 200[] 403! 403! 200[other] 403! 200[other] 200[other]
watch metadata.name=other: 200[] 200[] 403! 403! 200[other] 403! 200[other] 200[other]
deletecollection metadata.name=other: 403! 403! 403! 403! 403! 403! 200[other] 200[other]
get named: 200 403! 403! 403! 200 403! 200 200
create named: 403! 403! 403! 403! 403! 403! 409 409
update named: 403! 403! 403! 403! 403! 403! 200 200
label named: 403! 403! 403! 403! 403! 403! 200 200
delete named: 403! 403! 403! 403! 403! 403! 200 200
get other: 403! 403! 403! 403! 200 403! 200 200
create other: 403! 403! 403! 403! 403! 403! 409 409
update other: 403! 403! 403! 403! 403! 403! 200 200
label other: 403! 403! 403! 403! 403! 403! 200 200
delete other: 403! 403! 403! 403! 403! 403! 200 200
get later: 404 403! 403! 403! 404 403! 404 404
create later: 403! 403! 403! 403! 403! 403! 201 201
update later: 404 403! 403! 403! 404 403! 404 404
label later: 404 403! 403! 403! 404 403! 404 404
delete later: 404 403! 403! 403! 404 403! 404 404
get missing: 403! 403! 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 403! 403! 403! 403! 404 403! 404 404
label missing: 403! 403! 403! 403! 404 403! 404 404
delete missing: 403! 403! 403! 403! 404 403! 404 404
[volumes]
list: 200[disk] 200[] 403! 403! 200[disk,other] 403! 200[disk,other] 200[disk,other]
watch: 200[disk] 200[] 403! 403! 200[disk,other] 403! 200[disk,other] 200[disk,other]
deletecollection: 403! 403! 403! 403! 403! 403! 200[disk,other] 200[disk,other]
get disk: 200 403! 403! 403! 200 403! 200 200
create disk: 403! 403! 403! 403! 403! 403! 409 409
update disk: 422 403! 403! 403! 422 403! 422 422
label disk: 403! 403! 403! 403! 403! 403! 200 200
release disk: 200 403! 403! 403! 403! 403! 200 200
delete disk: 403! 403! 403! 403! 403! 403! 200 200
get disk/status: 200 403! 403! 403! 200 403! 200 200
patch disk/status: 403! 403! 403! 403! 403! 403! 200 200
get other: 403! 403! 403! 403! 200 403! 200 200
create other: 403! 403! 403! 403! 403! 403! 409 409
update other: 403! 403! 403! 403! 403! 403! 200 200
label other: 403! 403! 403! 403! 403! 403! 200 200
release other: 403! 403! 403! 403! 403! 403! 200 200
delete other: 403! 403! 403! 403! 403! 403! 200 200
get other/status: 403! 403! 403! 403! 200 403! 200 200
patch other/status: 403! 403! 403! 403! 403! 403! 200 200
get missing: 403! 403! 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 403! 403! 403! 403! 404 403! 404 404
label missing: 403! 403! 403! 403! 404 403! 404 404
release missing: 403! 403! 403! 403! 404 403! 404 404
delete missing: 403! 403! 403! 403! 404 403! 404 404
get missing/status: 403! 403! 403! 403! 404 403! 404 404
patch missing/status: 403! 403! 403! 403! 404 403! 404 404
[networkinterfaces]
list: 200[nic] 200[] 403! 403! 200[nic,other] 403! 200[nic,other] 200[nic,other]
watch: 200[nic] 200[] 403! 403! 200[nic,other] 403! 200[nic,other] 200[nic,other]
deletecollection: 403! 403! 403! 403! 403! 403! 200[nic,other] 200[nic,other]
get nic: 200 403! 403! 403! 200 403! 200 200
create nic: 403! 403! 403! 403! 403! 403! 409 409
update nic: 200 403! 403! 403! 403! 403! 200 200
label nic: 403! 403! 403! 403! 403! 403! 200 200
provide nic: 200 403! 403! 403! 403! 403! 200 200
delete nic: 403! 403! 403! 403! 403! 403! 200 200
get nic/status: 200 403! 403! 403! 200 403! 200 200
patch nic/status: 200 403! 403! 403! 403! 403! 200 200
get other: 403! 403! 403! 403! 200 403! 200 200
create other: 403! 403! 403! 403! 403! 403! 409 409
update other: 403! 403! 403! 403! 422 403! 422 422
label other: 403! 403! 403! 403! 403! 403! 200 200
provide other: 403! 403! 403! 403! 403! 403! 200 200
delete other: 403! 403! 403! 403! 403! 403! 200 200
get other/status: 403! 403! 403! 403! 200 403! 200 200
patch other/status: 403! 403! 403! 403! 403! 403! 200 200
get missing: 403! 403! 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 403! 403! 403! 403! 404 403! 404 404
label missing: 403! 403! 403! 403! 404 403! 404 404
provide missing: 403! 403! 403! 403! 404 403! 404 404
delete missing: 403! 403! 403! 403! 404 403! 404 404
get missing/status: 403! 403! 403! 403! 404 403! 404 404
patch missing/status: 403! 403! 403! 403! 404 403! 404 404
[networks]
list: 200[lan] 200[] 403! 403! 200[lan,wan] 403! 200[lan,wan] 200[lan,wan]
watch: 200[lan] 200[] 403! 403! 200[lan,wan] 403! 200[lan,wan] 200[lan,wan]
deletecollection: 403! 403! 403! 403! 403! 403! 200[lan,wan] 200[lan,wan]
get lan: 200 403! 403! 403! 200 403! 200 200
create lan: 403! 403! 403! 403! 403! 403! 409 409
update lan: 403! 403! 403! 403! 403! 403! 200 200
label lan: 403! 403! 403! 403! 403! 403! 200 200
delete lan: 403! 403! 403! 403! 403! 403! 200 200
get wan: 403! 403! 403! 403! 200 403! 200 200
create wan: 403! 403! 403! 403! 403! 403! 409 409
update wan: 403! 403! 403! 403! 403! 403! 200 200
label wan: 403! 403! 403! 403! 403! 403! 200 200
delete wan: 403! 403! 403! 403! 403! 403! 200 200
get missing: 403! 403! 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 403! 403! 403! 403! 404 403! 404 404
label missing: 403! 403! 403! 403! 404 403! 404 404
delete missing: 403! 403! 403! 403! 404 403! 404 404
[leases]
list: 200[node-a,node-b] 200[node-a,node-b] 403! 403! 403! 403! 200[node-a,node-b] 200[node-a,node-b]
watch: 200[node-a,node-b] 200[node-a,node-b] 403! 403! 403! 403! 200[node-a,node-b] 200[node-a,node-b]
deletecollection: 403! 403! 403! 403! 403! 403! 200[node-a,node-b] 200[node-a,node-b]
list metadata.name=node-a: 200[node-a] 200[node-a] 403! 403! 200[node-a] 403! 200[node-a] 200[node-a]
watch metadata.name=node-a: 200[node-a] 200[node-a] 403! 403! 200[node-a] 403! 200[node-a] 200[node-a]
deletecollection metadata.name=node-a: 403! 403! 403! 403! 403! 403! 200[node-a] 200[node-a]
get node-a: 200 200 403! 403! 200 403! 200 200
create node-a: 403! 403! 403! 403! 409 403! 409 409
update node-a: 403! 403! 403! 403! 200 403! 200 200
label node-a: 403! 403! 403! 403! 200 403! 200 200
delete node-a: 403! 403! 403! 403! 200 403! 200 200
get node-b: 200 200 403! 403! 403! 403! 200 200
create node-b: 403! 403! 403! 403! 403! 403! 409 409
update node-b: 403! 403! 403! 403! 403! 403! 200 200
label node-b: 403! 403! 403! 403! 403! 403! 200 200
delete node-b: 403! 403! 403! 403! 403! 403! 200 200
get pool-a: 404 404 403! 403! 404 403! 404 404
create pool-a: 403! 403! 403! 403! 403! 403! 201 201
update pool-a: 404 404 403! 403! 404 403! 404 404
label pool-a: 404 404 403! 403! 404 403! 404 404
delete pool-a: 404 404 403! 403! 404 403! 404 404
[pool leases]
list: 200[pool-a,pool-b] 200[pool-a,pool-b] 403! 403! 403! 403! 200[pool-a,pool-b] 200[pool-a,pool-b]
watch: 200[pool-a,pool-b] 200[pool-a,pool-b] 403! 403! 403! 403! 200[pool-a,pool-b] 200[pool-a,pool-b]
deletecollection: 403! 403! 403! 403! 403! 403! 200[pool-a,pool-b] 200[pool-a,pool-b]
get pool-a: 200 200 403! 403! 403! 403! 200 200
create pool-a: 409 403! 403! 403! 403! 403! 409 409
update pool-a: 200 403! 403! 403! 403! 403! 200 200
label pool-a: 200 403! 403! 403! 403! 403! 200 200
delete pool-a: 200 403! 403! 403! 403! 403! 200 200
get pool-b: 200 200 403! 403! 403! 403! 200 200
create pool-b: 403! 409 403! 403! 403! 403! 409 409
update pool-b: 403! 200 403! 403! 403! 403! 200 200
label pool-b: 403! 200 403! 403! 403! 403! 200 200
delete pool-b: 403! 200 403! 403! 403! 403! 200 200
get node-a: 404 404 403! 403! 404 403! 404 404
create node-a: 403! 403! 403! 403! 403! 403! 201 201
update node-a: 404 404 403! 403! 404 403! 404 404
label node-a: 404 404 403! 403! 404 403! 404 404
delete node-a: 404 404 403! 403! 404 403! 404 404
[nodes]
list: 200[node-a,node-b] 200[node-a,node-b] 403! 403! 403! 403! 200[node-a,node-b] 200[node-a,node-b]
watch: 200[node-a,node-b] 200[node-a,node-b] 403! 403! 403! 403! 200[node-a,node-b] 200[node-a,node-b]
deletecollection: 403! 403! 403! 403! 403! 403! 200[node-a,node-b] 200[node-a,node-b]
list metadata.name=node-a: 200[node-a] 200[node-a] 403! 403! 200[node-a] 403! 200[node-a] 200[node-a]
watch metadata.name=node-a: 200[node-a] 200[node-a] 403! 403! 200[node-a] 403! 200[node-a] 200[node-a]
deletecollection metadata.name=node-a: 403! 403! 403! 403! 403! 403! 200[node-a] 200[node-a]
get node-a: 200 200 403! 403! 200 403! 200 200
create node-a: 403! 403! 403! 403! 409 403! 409 409
update node-a: 403! 403! 403! 403! 200 403! 200 200
label node-a: 403! 403! 403! 403! 200 403! 200 200
delete node-a: 403! 403! 403! 403! 403! 403! 200 200
get node-a/status: 200 200 403! 403! 200 403! 200 200
patch node-a/status: 403! 403! 403! 403! 200 403! 200 200
get node-b: 200 200 403! 403! 403! 403! 200 200
create node-b: 403! 403! 403! 403! 403! 403! 409 409
update node-b: 403! 403! 403! 403! 403! 403! 200 200
label node-b: 403! 403! 403! 403! 403! 403! 200 200
delete node-b: 403! 403! 403! 403! 403! 403! 200 200
get node-b/status: 200 200 403! 403! 403! 403! 200 200
patch node-b/status: 403! 403! 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 403! 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
get missing/status: 404 404 403! 403! 403! 403! 404 404
patch missing/status: 404 404 403! 403! 404 403! 404 404
[events]
list: 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs] 403! 403! 200[of-mine,of-node-a,of-theirs] 403! 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs]
watch: 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs] 403! 403! 200[of-mine,of-node-a,of-theirs] 403! 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs]
deletecollection: 403! 403! 403! 403! 403! 403! 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs]
get of-mine: 200 200 403! 403! 200 403! 200 200
create of-mine: 403! 403! 403! 403! 403! 403! 409 409
update of-mine: 403! 403! 403! 403! 403! 403! 200 200
label of-mine: 200 403! 403! 403! 403! 403! 200 200
delete of-mine: 403! 403! 403! 403! 403! 403! 200 200
get of-theirs: 200 200 403! 403! 200 403! 200 200
create of-theirs: 403! 403! 403! 403! 403! 403! 409 409
update of-theirs: 403! 403! 403! 403! 403! 403! 200 200
label of-theirs: 403! 200 403! 403! 403! 403! 200 200
delete of-theirs: 403! 403! 403! 403! 403! 403! 200 200
get of-node-a: 200 200 403! 403! 200 403! 200 200
create of-node-a: 403! 403! 403! 403! 403! 403! 409 409
update of-node-a: 403! 403! 403! 403! 403! 403! 200 200
label of-node-a: 403! 403! 403! 403! 200 403! 200 200
delete of-node-a: 403! 403! 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
[new events]
list: 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs] 403! 403! 200[of-mine,of-node-a,of-theirs] 403! 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs]
watch: 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs] 403! 403! 200[of-mine,of-node-a,of-theirs] 403! 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs]
deletecollection: 403! 403! 403! 403! 403! 403! 200[of-mine,of-node-a,of-theirs] 200[of-mine,of-node-a,of-theirs]
get of-mine: 200 200 403! 403! 200 403! 200 200
create of-mine: 403! 403! 403! 403! 403! 403! 409 409
update of-mine: 403! 403! 403! 403! 403! 403! 200 200
label of-mine: 422 422 403! 403! 422 403! 422 422
delete of-mine: 403! 403! 403! 403! 403! 403! 200 200
get of-theirs: 200 200 403! 403! 200 403! 200 200
create of-theirs: 403! 403! 403! 403! 403! 403! 409 409
update of-theirs: 403! 403! 403! 403! 403! 403! 200 200
label of-theirs: 422 422 403! 403! 422 403! 422 422
delete of-theirs: 403! 403! 403! 403! 403! 403! 200 200
get of-node-a: 200 200 403! 403! 200 403! 200 200
create of-node-a: 403! 403! 403! 403! 403! 403! 409 409
update of-node-a: 403! 403! 403! 403! 403! 403! 200 200
label of-node-a: 422 422 403! 403! 422 403! 422 422
delete of-node-a: 403! 403! 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
[certificatesigningrequests]
list: 200[of-pool-a] 200[] 403! 403! 200[of-node-a] 403! 200[of-node-a,of-pool-a] 200[of-node-a,of-pool-a]
watch: 200[of-pool-a] 200[] 403! 403! 200[of-node-a] 403! 200[of-node-a,of-pool-a] 200[of-node-a,of-pool-a]
deletecollection: 403! 403! 403! 403! 403! 403! 200[of-node-a,of-pool-a] 200[of-node-a,of-pool-a]
get of-pool-a: 200 404 403! 403! 403! 403! 200 200
create of-pool-a: 422 422 403! 403! 422 403! 422 422
update of-pool-a: 422 404 403! 403! 422 403! 422 422
label of-pool-a: 422 404 403! 403! 422 403! 422 422
delete of-pool-a: 403! 404 403! 403! 403! 403! 200 200
get of-pool-a/status: 200 404 403! 403! 403! 403! 200 200
patch of-pool-a/status: 403! 404 403! 403! 403! 403! 200 200
get of-node-a: 404 404 403! 403! 200 403! 200 200
create of-node-a: 422 422 403! 403! 422 403! 422 422
update of-node-a: 404 404 403! 403! 422 403! 422 422
label of-node-a: 404 404 403! 403! 422 403! 422 422
delete of-node-a: 404 404 403! 403! 403! 403! 200 200
get of-node-a/status: 404 404 403! 403! 200 403! 200 200
patch of-node-a/status: 404 404 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 422 422 403! 403! 422 403! 422 422
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
get missing/status: 404 404 403! 403! 404 403! 404 404
patch missing/status: 404 404 403! 403! 404 403! 404 404
[namespaces]
list: 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 403! 403! 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 403! 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system]
watch: 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 403! 403! 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 403! 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system] 200[default,ironcore-machinepool-lease,kube-node-lease,kube-system]
deletecollection: 403! 403! 403! 403! 403! 403! 403 403
get default: 200 200 403! 403! 200 403! 200 200
create default: 403! 403! 403! 403! 403! 403! 409 409
update default: 403! 403! 403! 403! 403! 403! 200 200
label default: 403! 403! 403! 403! 403! 403! 200 200
delete default: 403! 403! 403! 403! 403! 403! 403 403
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
[clusterroles]
list: 200[25] 200[25] 403! 403! 200[25] 403! 200[25] 200[25]
watch: 200[25] 200[25] 403! 403! 200[25] 403! 200[25] 200[25]
deletecollection: 403! 403! 403! 403! 403! 403! 200[25] 200[25]
get view: 200 200 403! 403! 200 403! 200 200
create view: 403! 403! 403! 403! 403! 403! 409 409
update view: 403! 403! 403! 403! 403! 403! 200 200
label view: 403! 403! 403! 403! 403! 403! 200 200
delete view: 403! 403! 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
[serviceaccounts]
list: 200[robot] 200[robot] 403! 403! 200[robot] 403! 200[robot] 200[robot]
watch: 200[robot] 200[robot] 403! 403! 200[robot] 403! 200[robot] 200[robot]
deletecollection: 403! 403! 403! 403! 403! 403! 200[robot] 200[robot]
get robot: 200 200 403! 403! 200 403! 200 200
create robot: 403! 403! 403! 403! 403! 403! 409 409
update robot: 403! 403! 403! 403! 403! 403! 200 200
label robot: 403! 403! 403! 403! 403! 403! 200 200
delete robot: 403! 403! 403! 403! 403! 403! 200 200
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 403! 403! 403! 403! 403! 403! 201 201
update missing: 404 404 403! 403! 404 403! 404 404
label missing: 404 404 403! 403! 404 403! 404 404
delete missing: 404 404 403! 403! 404 403! 404 404
[consolesessions]
list: 200[] 200[] 403! 403! 200[] 403! 200[] 200[]
watch: 200[] 200[] 403! 403! 200[] 403! 200[] 200[]
deletecollection: 403! 403! 403! 403! 403! 403! 200[] 200[]
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 405 405 405 405 405 405 405 405
update missing: 405 405 405 405 405 405 405 405
delete missing: 404 404 403! 403! 404 403! 404 404
[deletedconsoles]
list: 403! 403! 403! 403! 200[of-mine,of-theirs] 403! 200[of-mine,of-theirs] 200[of-mine,of-theirs]
watch: 403! 403! 403! 403! 200[of-mine,of-theirs] 403! 200[of-mine,of-theirs] 200[of-mine,of-theirs]
deletecollection: 403! 403! 403! 403! 403! 403! 200[of-mine,of-theirs] 200[of-mine,of-theirs]
get of-mine: 200 404 403! 403! 200 403! 200 200
create of-mine: 405 405 405 405 405 405 405 405
update of-mine: 405 405 405 405 405 405 405 405
delete of-mine: 403! 404 403! 403! 403! 403! 200 200
get of-mine/log: 403! 403! 403! 403! 403! 403! 503 503
get of-theirs: 404 200 403! 403! 200 403! 200 200
create of-theirs: 405 405 405 405 405 405 405 405
update of-theirs: 405 405 405 405 405 405 405 405
delete of-theirs: 404 403! 403! 403! 403! 403! 200 200
get of-theirs/log: 403! 403! 403! 403! 403! 403! 503 503
get missing: 404 404 403! 403! 404 403! 404 404
create missing: 405 405 405 405 405 405 405 405
update missing: 405 405 405 405 405 405 405 405
delete missing: 404 404 403! 403! 404 403! 404 404
get missing/log: 403! 403! 403! 403! 403! 403! 404 404
[pods]
list: 403! 403! 403! 403! 403! 403! 200[] 200[free,mine,theirs]
watch: 403! 403! 403! 403! 403! 403! 200[] 200[free,mine,theirs]
deletecollection: 405 405 405 405 405 405 405 405
get mine: 403! 403! 403! 403! 403! 403! 404 200
create mine: 405 405 405 405 405 405 405 405
update mine: 405 405 405 405 405 405 405 405
delete mine: 405 405 405 405 405 405 405 405
get mine/status: 403! 403! 403! 403! 403! 403! 403 200
patch mine/status: 405 405 405 405 405 405 405 405
post mine/attach?stdin=1: 403! 403! 403! 403! 403! 403! 404 503
post mine/exec: 403! 403! 403! 403! 403! 403! 404 503
get mine/log: 403! 403! 403! 403! 403! 403! 404 503
get theirs: 403! 403! 403! 403! 403! 403! 404 200
create theirs: 405 405 405 405 405 405 405 405
update theirs: 405 405 405 405 405 405 405 405
delete theirs: 405 405 405 405 405 405 405 405
get theirs/status: 403! 403! 403! 403! 403! 403! 403 200
patch theirs/status: 405 405 405 405 405 405 405 405
post theirs/attach?stdin=1: 403! 403! 403! 403! 403! 403! 404 503
post theirs/exec: 403! 403! 403! 403! 403! 403! 404 503
get theirs/log: 403! 403! 403! 403! 403! 403! 404 503
get missing: 403! 403! 403! 403! 403! 403! 404 404
create missing: 405 405 405 405 405 405 405 405
update missing: 405 405 405 405 405 405 405 405
delete missing: 405 405 405 405 405 405 405 405
get missing/status: 403! 403! 403! 403! 403! 403! 403 404
patch missing/status: 405 405 405 405 405 405 405 405
post missing/attach?stdin=1: 403! 403! 403! 403! 403! 403! 404 404
post missing/exec: 403! 403! 403! 403! 403! 403! 404 404
get missing/log: 403! 403! 403! 403! 403! 403! 404 404
"""
