"""
Messages of the refusals.
"""

REASONS = """
the poollet of machine pool "pool-a" may not create clusterroles "*"
the poollet of machine pool "pool-a" may not create events "*"
the poollet of machine pool "pool-a" may not create leases "*"
the poollet of machine pool "pool-a" may not create machineclasses "*"
the poollet of machine pool "pool-a" may not create machinepools "*"
the poollet of machine pool "pool-a" may not create machines "*"
the poollet of machine pool "pool-a" may not create namespaces "*"
the poollet of machine pool "pool-a" may not create networkinterfaces "*"
the poollet of machine pool "pool-a" may not create networks "*"
the poollet of machine pool "pool-a" may not create nodes "*"
the poollet of machine pool "pool-a" may not create secrets "*"
the poollet of machine pool "pool-a" may not create serviceaccounts "*"
the poollet of machine pool "pool-a" may not create volumes "*"
the poollet of machine pool "pool-a" may not delete certificatesigningrequests "*"
the poollet of machine pool "pool-a" may not delete clusterroles "*"
the poollet of machine pool "pool-a" may not delete collections of certificatesigningrequests
the poollet of machine pool "pool-a" may not delete collections of clusterroles
the poollet of machine pool "pool-a" may not delete collections of consolesessions
the poollet of machine pool "pool-a" may not delete collections of deletedconsoles
the poollet of machine pool "pool-a" may not delete collections of events
the poollet of machine pool "pool-a" may not delete collections of leases
the poollet of machine pool "pool-a" may not delete collections of machineclasses
the poollet of machine pool "pool-a" may not delete collections of machinepools
the poollet of machine pool "pool-a" may not delete collections of machines
the poollet of machine pool "pool-a" may not delete collections of namespaces
the poollet of machine pool "pool-a" may not delete collections of networkinterfaces
the poollet of machine pool "pool-a" may not delete collections of networks
the poollet of machine pool "pool-a" may not delete collections of nodes
the poollet of machine pool "pool-a" may not delete collections of secrets
the poollet of machine pool "pool-a" may not delete collections of serviceaccounts
the poollet of machine pool "pool-a" may not delete collections of volumes
the poollet of machine pool "pool-a" may not delete deletedconsoles "*"
the poollet of machine pool "pool-a" may not delete events "*"
the poollet of machine pool "pool-a" may not delete leases "*"
the poollet of machine pool "pool-a" may not delete machineclasses "*"
the poollet of machine pool "pool-a" may not delete machinepools "*"
the poollet of machine pool "pool-a" may not delete machines "*"
the poollet of machine pool "pool-a" may not delete namespaces "*"
the poollet of machine pool "pool-a" may not delete networkinterfaces "*"
the poollet of machine pool "pool-a" may not delete networks "*"
the poollet of machine pool "pool-a" may not delete nodes "*"
the poollet of machine pool "pool-a" may not delete secrets "*"
the poollet of machine pool "pool-a" may not delete serviceaccounts "*"
the poollet of machine pool "pool-a" may not delete volumes "*"
the poollet of machine pool "pool-a" may not list deletedconsoles
the poollet of machine pool "pool-a" may not open the console of machine free
the poollet of machine pool "pool-a" may not open the console of machine mine
the poollet of machine pool "pool-a" may not open the console of machine missing
the poollet of machine pool "pool-a" may not open the console of machine of-mine
the poollet of machine pool "pool-a" may not open the console of machine of-theirs
the poollet of machine pool "pool-a" may not open the console of machine theirs
the poollet of machine pool "pool-a" may not see machines without the field selector spec.machinePoolRef.name=pool-a
the poollet of machine pool "pool-a" may not see networkinterfaces "missing": no machine of it needs that
the poollet of machine pool "pool-a" may not see networkinterfaces "other": no machine of it needs that
the poollet of machine pool "pool-a" may not see networks "missing": no machine of it needs that
the poollet of machine pool "pool-a" may not see networks "wan": no machine of it needs that
the poollet of machine pool "pool-a" may not see pods
the poollet of machine pool "pool-a" may not see secrets "missing": no machine of it needs that
the poollet of machine pool "pool-a" may not see secrets "other": no machine of it needs that
the poollet of machine pool "pool-a" may not see volumes "missing": no machine of it needs that
the poollet of machine pool "pool-a" may not see volumes "other": no machine of it needs that
the poollet of machine pool "pool-a" may not update certificatesigningrequests "*"
the poollet of machine pool "pool-a" may not update clusterroles "*"
the poollet of machine pool "pool-a" may not update events "*"
the poollet of machine pool "pool-a" may not update leases "*"
the poollet of machine pool "pool-a" may not update machineclasses "*"
the poollet of machine pool "pool-a" may not update machinepools "*"
the poollet of machine pool "pool-a" may not update machines "*"
the poollet of machine pool "pool-a" may not update namespaces "*"
the poollet of machine pool "pool-a" may not update networkinterfaces "*"
the poollet of machine pool "pool-a" may not update networks "*"
the poollet of machine pool "pool-a" may not update nodes "*"
the poollet of machine pool "pool-a" may not update secrets "*"
the poollet of machine pool "pool-a" may not update serviceaccounts "*"
the poollet of machine pool "pool-a" may not update volumes "*"
the poollet of machine pool "pool-b" may not create clusterroles "*"
the poollet of machine pool "pool-b" may not create events "*"
the poollet of machine pool "pool-b" may not create leases "*"
the poollet of machine pool "pool-b" may not create machineclasses "*"
the poollet of machine pool "pool-b" may not create machinepools "*"
the poollet of machine pool "pool-b" may not create machines "*"
the poollet of machine pool "pool-b" may not create namespaces "*"
the poollet of machine pool "pool-b" may not create networkinterfaces "*"
the poollet of machine pool "pool-b" may not create networks "*"
the poollet of machine pool "pool-b" may not create nodes "*"
the poollet of machine pool "pool-b" may not create secrets "*"
the poollet of machine pool "pool-b" may not create serviceaccounts "*"
the poollet of machine pool "pool-b" may not create volumes "*"
the poollet of machine pool "pool-b" may not delete clusterroles "*"
the poollet of machine pool "pool-b" may not delete collections of certificatesigningrequests
the poollet of machine pool "pool-b" may not delete collections of clusterroles
the poollet of machine pool "pool-b" may not delete collections of consolesessions
the poollet of machine pool "pool-b" may not delete collections of deletedconsoles
the poollet of machine pool "pool-b" may not delete collections of events
the poollet of machine pool "pool-b" may not delete collections of leases
the poollet of machine pool "pool-b" may not delete collections of machineclasses
the poollet of machine pool "pool-b" may not delete collections of machinepools
the poollet of machine pool "pool-b" may not delete collections of machines
the poollet of machine pool "pool-b" may not delete collections of namespaces
the poollet of machine pool "pool-b" may not delete collections of networkinterfaces
the poollet of machine pool "pool-b" may not delete collections of networks
the poollet of machine pool "pool-b" may not delete collections of nodes
the poollet of machine pool "pool-b" may not delete collections of secrets
the poollet of machine pool "pool-b" may not delete collections of serviceaccounts
the poollet of machine pool "pool-b" may not delete collections of volumes
the poollet of machine pool "pool-b" may not delete deletedconsoles "*"
the poollet of machine pool "pool-b" may not delete events "*"
the poollet of machine pool "pool-b" may not delete leases "*"
the poollet of machine pool "pool-b" may not delete machineclasses "*"
the poollet of machine pool "pool-b" may not delete machinepools "*"
the poollet of machine pool "pool-b" may not delete machines "*"
the poollet of machine pool "pool-b" may not delete namespaces "*"
the poollet of machine pool "pool-b" may not delete nodes "*"
the poollet of machine pool "pool-b" may not delete serviceaccounts "*"
the poollet of machine pool "pool-b" may not list deletedconsoles
the poollet of machine pool "pool-b" may not open the console of machine free
the poollet of machine pool "pool-b" may not open the console of machine mine
the poollet of machine pool "pool-b" may not open the console of machine missing
the poollet of machine pool "pool-b" may not open the console of machine of-mine
the poollet of machine pool "pool-b" may not open the console of machine of-theirs
the poollet of machine pool "pool-b" may not open the console of machine theirs
the poollet of machine pool "pool-b" may not see machines without the field selector spec.machinePoolRef.name=pool-b
the poollet of machine pool "pool-b" may not see networkinterfaces "missing": no machine of it needs that
the poollet of machine pool "pool-b" may not see networkinterfaces "nic": no machine of it needs that
the poollet of machine pool "pool-b" may not see networkinterfaces "other": no machine of it needs that
the poollet of machine pool "pool-b" may not see networks "lan": no machine of it needs that
the poollet of machine pool "pool-b" may not see networks "missing": no machine of it needs that
the poollet of machine pool "pool-b" may not see networks "wan": no machine of it needs that
the poollet of machine pool "pool-b" may not see pods
the poollet of machine pool "pool-b" may not see secrets "later": no machine of it needs that
the poollet of machine pool "pool-b" may not see secrets "missing": no machine of it needs that
the poollet of machine pool "pool-b" may not see secrets "named": no machine of it needs that
the poollet of machine pool "pool-b" may not see secrets "other": no machine of it needs that
the poollet of machine pool "pool-b" may not see volumes "disk": no machine of it needs that
the poollet of machine pool "pool-b" may not see volumes "missing": no machine of it needs that
the poollet of machine pool "pool-b" may not see volumes "other": no machine of it needs that
the poollet of machine pool "pool-b" may not update clusterroles "*"
the poollet of machine pool "pool-b" may not update events "*"
the poollet of machine pool "pool-b" may not update leases "*"
the poollet of machine pool "pool-b" may not update machineclasses "*"
the poollet of machine pool "pool-b" may not update machinepools "*"
the poollet of machine pool "pool-b" may not update machines "*"
the poollet of machine pool "pool-b" may not update namespaces "*"
the poollet of machine pool "pool-b" may not update nodes "*"
the poollet of machine pool "pool-b" may not update serviceaccounts "*"
the server of node "node-a" may not create clusterroles "*"
the server of node "node-a" may not create events "*"
the server of node "node-a" may not create leases "*"
the server of node "node-a" may not create machineclasses "*"
the server of node "node-a" may not create machinepools "*"
the server of node "node-a" may not create machines "*"
the server of node "node-a" may not create namespaces "*"
the server of node "node-a" may not create networkinterfaces "*"
the server of node "node-a" may not create networks "*"
the server of node "node-a" may not create nodes "*"
the server of node "node-a" may not create secrets "*"
the server of node "node-a" may not create serviceaccounts "*"
the server of node "node-a" may not create volumes "*"
the server of node "node-a" may not delete certificatesigningrequests "*"
the server of node "node-a" may not delete clusterroles "*"
the server of node "node-a" may not delete collections of certificatesigningrequests
the server of node "node-a" may not delete collections of clusterroles
the server of node "node-a" may not delete collections of consolesessions
the server of node "node-a" may not delete collections of deletedconsoles
the server of node "node-a" may not delete collections of events
the server of node "node-a" may not delete collections of leases
the server of node "node-a" may not delete collections of machineclasses
the server of node "node-a" may not delete collections of machinepools
the server of node "node-a" may not delete collections of machines
the server of node "node-a" may not delete collections of namespaces
the server of node "node-a" may not delete collections of networkinterfaces
the server of node "node-a" may not delete collections of networks
the server of node "node-a" may not delete collections of nodes
the server of node "node-a" may not delete collections of secrets
the server of node "node-a" may not delete collections of serviceaccounts
the server of node "node-a" may not delete collections of volumes
the server of node "node-a" may not delete deletedconsoles "*"
the server of node "node-a" may not delete events "*"
the server of node "node-a" may not delete leases "*"
the server of node "node-a" may not delete machineclasses "*"
the server of node "node-a" may not delete machinepools "*"
the server of node "node-a" may not delete machines "*"
the server of node "node-a" may not delete namespaces "*"
the server of node "node-a" may not delete networkinterfaces "*"
the server of node "node-a" may not delete networks "*"
the server of node "node-a" may not delete nodes "*"
the server of node "node-a" may not delete secrets "*"
the server of node "node-a" may not delete serviceaccounts "*"
the server of node "node-a" may not delete volumes "*"
the server of node "node-a" may not open the console of free
the server of node "node-a" may not open the console of mine
the server of node "node-a" may not open the console of missing
the server of node "node-a" may not open the console of of-mine
the server of node "node-a" may not open the console of of-theirs
the server of node "node-a" may not open the console of theirs
the server of node "node-a" may not see certificatesigningrequests "*"
the server of node "node-a" may not see leases "*"
the server of node "node-a" may not see leases without the field selector metadata.name=node-a
the server of node "node-a" may not see nodes "*"
the server of node "node-a" may not see nodes without the field selector metadata.name=node-a
the server of node "node-a" may not see pods
the server of node "node-a" may not update certificatesigningrequests "*"
the server of node "node-a" may not update clusterroles "*"
the server of node "node-a" may not update events "*"
the server of node "node-a" may not update leases "*"
the server of node "node-a" may not update machineclasses "*"
the server of node "node-a" may not update machinepools "*"
the server of node "node-a" may not update machines "*"
the server of node "node-a" may not update namespaces "*"
the server of node "node-a" may not update networkinterfaces "*"
the server of node "node-a" may not update networks "*"
the server of node "node-a" may not update nodes "*"
the server of node "node-a" may not update secrets "*"
the server of node "node-a" may not update serviceaccounts "*"
the server of node "node-a" may not update volumes "*"
user "compute.ironcore.dev:system:machinepool:pool-a" is not the poollet of one pool: its name must be compute.ironcore.dev:system:machinepool:POOL, its group compute.ironcore.dev:system:machinepools
user "someone" is not the poollet of one pool: its name must be compute.ironcore.dev:system:machinepool:POOL, its group compute.ironcore.dev:system:machinepools
user "someone" of system:nodes is not the server of one node: its name must be system:node:NODE
"""
"""Every reason that a restriction gives."""
