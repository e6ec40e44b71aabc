/* The fixed-width types of the kernel, without the kernel. */
#ifndef __SHIM_TYPES_H
#define __SHIM_TYPES_H
typedef signed char s8, __s8;
typedef unsigned char u8, __u8;
typedef short s16, __s16;
typedef unsigned short u16, __u16;
typedef int s32, __s32;
typedef unsigned int u32, __u32;
typedef long long s64, __s64;
typedef unsigned long long u64, __u64;
typedef __u16 __le16, __be16, __sum16;
typedef __u32 __le32, __be32, __wsum;
typedef __u64 __le64, __be64;
typedef __u64 __attribute__((aligned(8))) __aligned_u64;
typedef unsigned long size_t, uintptr_t;
typedef long ssize_t;
typedef int pid_t;
typedef _Bool bool;
enum { false = 0, true = 1 };
#ifndef NULL
#define NULL ((void *)0)
#endif
#endif
