"""The simulated fleet: kubelets, vLLM replicas, the gateway's load and dcgm-exporters, in one process.

`engine` is the model; `exposition` and `startup` give it vLLM's interface; `pod_worker` and `kubelet` give it
Kubernetes' interface; `workload` is the traffic; `control` lets a test or a demo cause faults.
"""
