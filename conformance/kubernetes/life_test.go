package kubernetes

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// work is the namespace of the deployments.
	work = "work"
	// keptDeployments stay until the end, with keptReplicas each.
	keptDeployments, keptReplicas = 3, 4
)

// comeAndGo makes namespaces with something in them and deletes them whole.
func (c *crowd) comeAndGo() {
	c.users.loop(func() {
		name := fmt.Sprintf("passing-%d", serial.Add(1))
		namespace := &corev1.Namespace{ObjectMeta: v1.ObjectMeta{Name: name}}
		if !c.users.try(func(ctx context.Context) error {
			_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, v1.CreateOptions{})
			return ignoreExists(err)
		}) {
			return
		}
		for number := range 5 {
			object := &corev1.ConfigMap{ObjectMeta: v1.ObjectMeta{Name: fmt.Sprint("c", number)}}
			c.users.try(func(ctx context.Context) error {
				_, err := c.client.CoreV1().ConfigMaps(name).Create(ctx, object, v1.CreateOptions{})
				return ignoreExists(err)
			})
		}
		c.users.try(func(ctx context.Context) error {
			return c.client.CoreV1().Namespaces().Delete(ctx, name, v1.DeleteOptions{})
		})
		gone := c.users.try(func(ctx context.Context) error {
			_, err := c.client.CoreV1().Namespaces().Get(ctx, name, v1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there: %v", err)
		})
		if !gone {
			return
		}
		c.users.try(func(ctx context.Context) error {
			left, err := c.client.CoreV1().ConfigMaps(name).List(ctx, v1.ListOptions{})
			if err == nil && len(left.Items) > 0 {
				c.t.Errorf("%d config maps are left of the deleted namespace `%s`", len(left.Items), name)
			}
			return err
		})
		c.namespaces.Add(1)
	})
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// roll makes the deployments that stay, and one after the other that grows,
// shrinks and goes.
func (c *crowd) roll() {
	c.users.try(func(ctx context.Context) error {
		_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: v1.ObjectMeta{Name: work}}, v1.CreateOptions{})
		return ignoreExists(err)
	})
	for number := range keptDeployments {
		c.deploy(fmt.Sprintf("kept-%d", number), keptReplicas)
	}
	c.users.loop(func() {
		name := fmt.Sprintf("rolled-%d", serial.Add(1))
		for _, replicas := range []int32{2, 5, 1} {
			if !c.deploy(name, replicas) || !c.isReady(name, replicas) {
				return
			}
		}
		background := v1.DeletePropagationForeground
		c.users.try(func(ctx context.Context) error {
			err := c.client.AppsV1().Deployments(work).Delete(ctx, name, v1.DeleteOptions{PropagationPolicy: &background})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		gone := c.users.try(func(ctx context.Context) error {
			left, err := c.client.CoreV1().Pods(work).List(ctx, v1.ListOptions{LabelSelector: "app=" + name})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%d pods are left", len(left.Items))
			}
			return err
		})
		if gone {
			c.rollouts.Add(1)
		}
	})
}

// deploy makes a deployment, or gives it another number of replicas.
func (c *crowd) deploy(name string, replicas int32) bool {
	labels := map[string]string{"app": name}
	wanted := &appsv1.Deployment{
		ObjectMeta: v1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &v1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: v1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/image:1"}}},
			},
		},
	}
	return c.users.try(func(ctx context.Context) error {
		client := c.client.AppsV1().Deployments(work)
		_, err := client.Create(ctx, wanted, v1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		current, err := client.Get(ctx, name, v1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Replicas = &replicas
		_, err = client.Update(ctx, current, v1.UpdateOptions{})
		return err
	})
}

// isReady waits until a deployment has that many ready pods, and no others.
func (c *crowd) isReady(name string, replicas int32) bool {
	return c.users.try(func(ctx context.Context) error { return c.settled(ctx, name, replicas) })
}

func (c *crowd) settled(ctx context.Context, name string, replicas int32) error {
	found, err := c.client.AppsV1().Deployments(work).Get(ctx, name, v1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := c.client.CoreV1().Pods(work).List(ctx, v1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	if found.Status.ReadyReplicas != replicas || len(pods.Items) != int(replicas) {
		return fmt.Errorf("`%s` has %d ready replicas and %d pods, not %d", name, found.Status.ReadyReplicas, len(pods.Items), replicas)
	}
	return nil
}

// auditDeployments waits until those that stay have their pods, all of them
// bound to a node.
func (c *crowd) auditDeployments() {
	for number := range keptDeployments {
		name := fmt.Sprintf("kept-%d", number)
		await(c.t, "the deployments that stay are ready", func(ctx context.Context) error { return c.settled(ctx, name, keptReplicas) })
	}
}

func number(text string) int64 {
	value, _ := strconv.ParseInt(text, 10, 64)
	return value
}
