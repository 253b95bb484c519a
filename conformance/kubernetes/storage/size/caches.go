package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"
)

const (
	prefix = "/registry"
	// writers fill the store at once.
	writers = 32
)

var codec = func() runtime.Codec {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	both := protobuf.NewSerializer(scheme, scheme)
	return serializer.NewCodecFactory(scheme).CodecForVersions(both, both, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
}()

// fill writes the pods as the API server encodes them, and returns the size of
// each.
func fill(ctx context.Context, endpoint string, pods, bytes int) (int, error) {
	client, err := newClient(endpoint)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	encode := func(number, padding int) (string, []byte, error) {
		pod := podNumber(number)
		pod.Annotations = map[string]string{"padding": strings.Repeat("x", padding)}
		encoded, err := runtime.Encode(codec, pod)
		return fmt.Sprintf("%s/pods/%s/%s", prefix, pod.Namespace, pod.Name), encoded, err
	}
	_, bare, err := encode(0, 256)
	if err != nil {
		return 0, err
	}
	padding := max(0, 256+bytes-len(bare))
	_, padded, err := encode(0, padding)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writing sync.WaitGroup
	for writer := range writers {
		writing.Go(func() {
			for number := writer; number < pods && ctx.Err() == nil; number += writers {
				key, value, err := encode(number, padding)
				if err == nil {
					_, err = client.Put(ctx, key, string(value))
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	writing.Wait()
	return len(padded), context.Cause(ctx)
}

// podNumber is a pod with what controllers and kubelets usually leave in it.
func podNumber(number int) *corev1.Pod {
	name := fmt.Sprintf("deployment-%04d-6c8f7d9b5-%06d", number/40, number)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("namespace-%03d", number%300), Name: name,
			Labels: map[string]string{"app": fmt.Sprint("deployment-", number/40), "pod-template-hash": "6c8f7d9b5"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint("deployment-", number/40, "-6c8f7d9b5"), UID: "b1946ac9-2492-4d23-8b1e-3f0a5e7c9d21",
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%04d", number%5000),
			Containers: []corev1.Container{{
				Name: "container", Image: "registry.example.com/team/service:1.2.3",
				Env:          []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "REGION", Value: "north"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.%d.%d.%d", number>>16&255, number>>8&255, number&255),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}
}

// fillCaches fills that many watch caches at once, each with a client of its
// own, and returns how long it took until all of them were ready.
func fillCaches(ctx context.Context, endpoint string, caches, pods int) (seconds float64, err error) {
	var stores []storage.Interface
	for range caches {
		client, err := newClient(endpoint)
		if err != nil {
			return 0, err
		}
		defer client.Close()
		compactor := etcd3.NewCompactor(client.Client, 0, clock.RealClock{}, nil)
		defer compactor.Stop()
		versioner := storage.APIObjectVersioner{}
		store, err := etcd3.New(client, compactor, codec, newPod, newPodList, prefix, "/pods/", schema.GroupResource{Resource: "pods"},
			identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
		if err != nil {
			return 0, err
		}
		defer store.Close()
		stores = append(stores, store)
	}
	began := time.Now()
	errors := make(chan error, caches)
	var all []*cacher.Cacher
	for _, store := range stores {
		cache, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: store, Versioner: storage.APIObjectVersioner{}, GroupResource: schema.GroupResource{Resource: "pods"},
			EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: "/pods/",
			KeyFunc:      func(object runtime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", object) },
			GetAttrsFunc: attributes, NewFunc: newPod, NewListFunc: newPodList, Codec: codec, Clock: clock.RealClock{},
		})
		if err != nil {
			return 0, err
		}
		defer cache.Stop()
		all = append(all, cache)
	}
	for _, cache := range all {
		go func() { errors <- cache.Wait(ctx) }()
	}
	for range all {
		if err := <-errors; err != nil {
			return 0, err
		}
	}
	seconds = time.Since(began).Seconds()
	for _, cache := range all {
		if found, err := count(ctx, cache); err != nil || found != pods {
			return 0, fmt.Errorf("a watch cache has %d pods, not %d: %w", found, pods, err)
		}
	}
	return seconds, nil
}

// count is the number of pods in a watch cache.
func count(ctx context.Context, cache *cacher.Cacher) (int, error) {
	list := &corev1.PodList{}
	err := cache.GetList(ctx, "/pods/", storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}, list)
	return len(list.Items), err
}

func newPod() runtime.Object     { return &corev1.Pod{} }
func newPodList() runtime.Object { return &corev1.PodList{} }

func attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("not a pod: %T", object)
	}
	return pod.Labels, fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace}, nil
}

func newClient(endpoint string) (*etcdkubernetes.Client, error) {
	return etcdkubernetes.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}
