/* Takes so many thread-specific keys before Python does that its own lies in the second block of them. */
#include <pthread.h>

__attribute__((constructor)) static void take(void)
{
	pthread_key_t key;
	for (int i = 0; i < 40; i++)
		pthread_key_create(&key, 0);
}
