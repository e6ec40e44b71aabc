/* Preloaded into a program: lets the n-th call of a family fail, as a machine does that is short of something.
 *
 * It sleeps until the program opens FAILING_MARKER, and acts only in the process that did: neither in what the
 * program starts nor in what it forks. Environment:
 *   FAILING_MARKER  path; opening it begins the count, and fails with ENOENT
 *   FAILING_TALLY   file that keeps `struct tally`, also of a program that is killed
 *   FAILING_FAMILY  open, read, write, mmap (of something), memory (mmap of nothing), bpf or perf_event_open;
 *                   none: it only counts
 *   FAILING_NTH     which call of the family fails, from 1 on
 *   FAILING_ON      1: every later one fails as well
 *   FAILING_ERRNO   how, by number
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* CPython 3.11 dies of it, whatever runs in it: no room for a call's frame makes it go on with none. */
#define PYTHONS_FRAMES (16 << 10)

enum family { OPEN, READ, WRITE, MMAP, MEMORY, BPF, PERF_EVENT_OPEN, FAMILIES };

static const char *const names[FAMILIES] = { "open", "read", "write", "mmap", "memory", "bpf", "perf_event_open" };

struct tally {
	uint64_t calls[FAMILIES];
	uint64_t failed;
	char first[200]; /* what the first call that failed was about */
};

static struct tally nobody, *tally = &nobody;
static const char *marker;
static int family = -1, number, on;
static uint64_t nth;
static pid_t armed;

/* The C library's own, without its lookup in each call. */
#define REAL(name) \
	static typeof(name) *real; \
	if (!real) \
		real = (typeof(name) *)dlsym(RTLD_NEXT, #name)

static long raw(long what, long a, long b, long c, long d, long e, long f)
{
	static long (*real)(long, ...);
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return real(what, a, b, c, d, e, f);
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("FAILING_TALLY"), *wanted = getenv("FAILING_FAMILY");
	marker = getenv("FAILING_MARKER");
	if (!path || !marker)
		return;
	int file = raw(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC, 0, 0, 0);
	if (file < 0)
		return;
	void *shared = (void *)raw(SYS_mmap, 0, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	raw(SYS_close, file, 0, 0, 0, 0, 0);
	if (shared != MAP_FAILED)
		tally = shared;
	for (int i = 0; wanted && i < FAMILIES; i++)
		if (!strcmp(wanted, names[i]))
			family = i;
	nth = strtoull(getenv("FAILING_NTH") ?: "0", NULL, 10);
	number = atoi(getenv("FAILING_ERRNO") ?: "5");
	on = getenv("FAILING_ON") != NULL;
}

/* Whether this call is to fail; errno says how. `path`, or else `fd`, tells what it is about. */
static int refused(enum family which, const char *path, int fd)
{
	if (!armed || raw(SYS_getpid, 0, 0, 0, 0, 0, 0) != armed)
		return 0;
	uint64_t count = __atomic_add_fetch(&tally->calls[which], 1, __ATOMIC_RELAXED);
	if ((int)which != family || (on ? count < nth : count != nth))
		return 0;
	if (!__atomic_fetch_add(&tally->failed, 1, __ATOMIC_RELAXED)) {
		char link[40];
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		if (path)
			strncpy(tally->first, path, sizeof tally->first - 1);
		else if (fd >= 0)
			raw(SYS_readlink, (long)link, (long)tally->first, sizeof tally->first - 1, 0, 0, 0);
	}
	errno = number;
	return 1;
}

static int opening(const char *path)
{
	if (marker && path && !strcmp(path, marker)) {
		armed = raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
		errno = ENOENT;
		return 1;
	}
	return refused(OPEN, path, -1);
}

#define MODE(flags, mode) \
	do { \
		if ((flags) & (O_CREAT | __O_TMPFILE)) { \
			va_list more; \
			va_start(more, flags); \
			mode = va_arg(more, mode_t); \
			va_end(more); \
		} \
	} while (0)

#define OPENS(name) \
	int name(const char *path, int flags, ...) \
	{ \
		mode_t mode = 0; \
		MODE(flags, mode); \
		REAL(name); \
		return opening(path) ? -1 : real(path, flags, mode); \
	}
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
	int name(int folder, const char *path, int flags, ...) \
	{ \
		mode_t mode = 0; \
		MODE(flags, mode); \
		REAL(name); \
		return opening(path) ? -1 : real(folder, path, flags, mode); \
	}
OPENS_AT(openat)
OPENS_AT(openat64)

/* what programs that were built with _FORTIFY_SOURCE call */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
ssize_t __read_chk(int fd, void *to, size_t size, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t size, off64_t at, size_t room);

int __open_2(const char *path, int flags)
{
	REAL(__open_2);
	return opening(path) ? -1 : real(path, flags);
}

int __open64_2(const char *path, int flags)
{
	REAL(__open64_2);
	return opening(path) ? -1 : real(path, flags);
}

int __openat_2(int folder, const char *path, int flags)
{
	REAL(__openat_2);
	return opening(path) ? -1 : real(folder, path, flags);
}

int __openat64_2(int folder, const char *path, int flags)
{
	REAL(__openat64_2);
	return opening(path) ? -1 : real(folder, path, flags);
}

FILE *fopen(const char *path, const char *mode)
{
	REAL(fopen);
	return opening(path) ? NULL : real(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	REAL(fopen64);
	return opening(path) ? NULL : real(path, mode);
}

ssize_t read(int fd, void *to, size_t size)
{
	REAL(read);
	return refused(READ, NULL, fd) ? -1 : real(fd, to, size);
}

ssize_t pread(int fd, void *to, size_t size, off_t at)
{
	REAL(pread);
	return refused(READ, NULL, fd) ? -1 : real(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
	REAL(pread64);
	return refused(READ, NULL, fd) ? -1 : real(fd, to, size, at);
}

ssize_t __read_chk(int fd, void *to, size_t size, size_t room)
{
	REAL(__read_chk);
	return refused(READ, NULL, fd) ? -1 : real(fd, to, size, room);
}

ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room)
{
	REAL(__pread_chk);
	return refused(READ, NULL, fd) ? -1 : real(fd, to, size, at, room);
}

ssize_t __pread64_chk(int fd, void *to, size_t size, off64_t at, size_t room)
{
	REAL(__pread64_chk);
	return refused(READ, NULL, fd) ? -1 : real(fd, to, size, at, room);
}

ssize_t write(int fd, const void *from, size_t size)
{
	REAL(write);
	return refused(WRITE, NULL, fd) ? -1 : real(fd, from, size);
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t at)
{
	REAL(pwrite);
	return refused(WRITE, NULL, fd) ? -1 : real(fd, from, size, at);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at)
{
	REAL(pwrite64);
	return refused(WRITE, NULL, fd) ? -1 : real(fd, from, size, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	REAL(writev);
	return refused(WRITE, NULL, fd) ? -1 : real(fd, parts, count);
}

void *mmap(void *where, size_t size, int rights, int flags, int fd, off_t at)
{
	REAL(mmap);
	if (fd < 0 && size == PYTHONS_FRAMES)
		return real(where, size, rights, flags, fd, at);
	return refused(fd < 0 ? MEMORY : MMAP, NULL, fd) ? MAP_FAILED : real(where, size, rights, flags, fd, at);
}

void *mmap64(void *where, size_t size, int rights, int flags, int fd, off64_t at)
{
	REAL(mmap64);
	if (fd < 0 && size == PYTHONS_FRAMES)
		return real(where, size, rights, flags, fd, at);
	return refused(fd < 0 ? MEMORY : MMAP, NULL, fd) ? MAP_FAILED : real(where, size, rights, flags, fd, at);
}

long syscall(long what, ...)
{
	long words[6];
	va_list more;
	va_start(more, what);
	for (int i = 0; i < 6; i++)
		words[i] = va_arg(more, long);
	va_end(more);
	if ((what == SYS_bpf && refused(BPF, NULL, -1)) ||
	    (what == SYS_perf_event_open && refused(PERF_EVENT_OPEN, NULL, -1)))
		return -1;
	return raw(what, words[0], words[1], words[2], words[3], words[4], words[5]);
}
