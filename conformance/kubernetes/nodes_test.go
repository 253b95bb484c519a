package kubernetes

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// nodeCount is how many nodes there are. They play the part of kubelets: they say that they live, that the pods
// bound to them run, and that those to be deleted have ended.
const nodeCount = 5

// play makes the nodes and starts them.
func (c *crowd) play() {
	for number := range nodeCount {
		name := fmt.Sprintf("node-%d", number)
		c.nodes.try(func(ctx context.Context) error { return c.register(ctx, name) })
		c.nodes.members.Go(func() { c.beat(name) })
	}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	pods := factory.Core().V1().Pods().Informer()
	queue := make(chan *corev1.Pod, 10_000)
	handle := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			queue <- pod
		}
	}
	pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, now any) { handle(now) },
	})
	factory.Start(c.nodes.ended.Done())
	for range 4 {
		c.nodes.members.Go(func() {
			for {
				select {
				case <-c.nodes.ended.Done():
					return
				case pod := <-queue:
					c.runPod(pod)
				}
			}
		})
	}
}

func (c *crowd) register(ctx context.Context, name string) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("250"),
	}
	now := v1.Now()
	_, err := c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: v1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}, v1.CreateOptions{})
	return ignoreExists(err)
}

// beat renews the node's lease every second.
func (c *crowd) beat(name string) {
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	duration := int32(40)
	for c.nodes.ended.Err() == nil {
		ctx, cancel := once()
		lease, err := leases.Get(ctx, name, v1.GetOptions{})
		now := v1.NowMicro()
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: v1.ObjectMeta{Name: name},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &duration, RenewTime: &now},
			}, v1.CreateOptions{})
		} else if err == nil {
			lease.Spec.RenewTime = &now
			_, err = leases.Update(ctx, lease, v1.UpdateOptions{})
		}
		cancel()
		if err == nil {
			c.beats.Add(1)
		}
		select {
		case <-c.nodes.ended.Done():
		case <-time.After(time.Second):
		}
	}
}

// runPod does what a kubelet would do about a pod.
func (c *crowd) runPod(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	pods := c.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		at := int64(0)
		c.nodes.try(func(ctx context.Context) error {
			err := pods.Delete(ctx, pod.Name, v1.DeleteOptions{GracePeriodSeconds: &at, Preconditions: &v1.Preconditions{UID: &pod.UID}})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
		return
	}
	if pod.Status.Phase == corev1.PodRunning {
		return
	}
	c.nodes.try(func(ctx context.Context) error {
		current, err := pods.Get(ctx, pod.Name, v1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (current.UID != pod.UID || current.Status.Phase == corev1.PodRunning) {
			return nil
		}
		if err != nil {
			return err
		}
		now := v1.Now()
		current.Status.Phase, current.Status.StartTime = corev1.PodRunning, &now
		for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
			current.Status.Conditions = append(current.Status.Conditions, corev1.PodCondition{
				Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now,
			})
		}
		_, err = pods.UpdateStatus(ctx, current, v1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
